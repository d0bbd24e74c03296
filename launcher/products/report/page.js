"use strict";
// The page is shown before the charts are drawn: BokehJS, a megabyte, is started after the first paint.
(function () {
  const data = document.getElementById("charts-data");
  if (!data) return;

  function start() {
    const script = document.createElement("script");
    script.textContent = document.getElementById("bokeh").textContent;
    document.head.appendChild(script);
    draw(JSON.parse(data.textContent)).then(() => {
      performance.mark("charts-drawn");
      document.documentElement.setAttribute("data-drawn", "yes");
    });
  }

  async function draw({doc, roots}) {
    const targets = {};
    for (const [key, root] of Object.entries(roots)) {
      const element = document.querySelector("#chart-" + key + " .plot");
      element.id = "plot-" + key;
      targets[root] = element.id;
    }
    await Bokeh.embed.embed_items({charts: doc}, [{docid: "charts", roots: targets, root_ids: Object.keys(targets)}]);
    const drawn = Bokeh.documents[Bokeh.documents.length - 1];
    const models = [...drawn._all_models.values()];
    for (const model of models)
      if (model.type === "BasicTickFormatter" && model.tags.includes("exponents"))
        model.doFormat = (ticks) => ticks.map((tick) => (tick ? Number(tick.toPrecision(6)).toExponential() : "0"));
    paint(models);
    for (const query of [window.matchMedia("(prefers-color-scheme: dark)"), narrow])
      query.addEventListener("change", () => paint(models));
    window.addEventListener("beforeprint", () => paint(models));
    window.addEventListener("afterprint", () => paint(models));
    choose(models);
    for (const [key, root] of Object.entries(roots)) control(document.getElementById("chart-" + key), drawn.get_model_by_id(root));
  }

  const tag = (model, word) => {
    const found = (model.tags || []).find((each) => String(each).startsWith(word + " "));
    return found === undefined ? null : found.slice(word.length + 1);
  };

  const narrow = window.matchMedia("(max-width: 640px)");

  function paint(models) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    for (const model of models) {
      if (model.type === "Plot") {
        model.setv({background_fill_color: null, border_fill_color: null, outline_line_color: null});
      } else if (model.type.endsWith("Axis")) {
        model.setv({
          axis_label_text_color: colour("axis"), axis_label_text_font_style: "normal", axis_label_text_font_size: "12px",
          major_label_text_color: colour("axis"), major_label_text_font_size: "12px",
          axis_line_color: colour("line"), major_tick_line_color: colour("line"), minor_tick_line_color: null,
        });
        if (model.type === "CategoricalAxis") model.visible = !narrow.matches;
      } else if (model.type === "Grid") {
        model.setv({grid_line_color: colour("grid")});
      } else if (model.type === "GlyphRenderer" && (model.tags || []).includes("labels")) {
        model.glyph.setv({text_color: colour("text")});
        model.visible = narrow.matches;
      } else if (model.type === "GlyphRenderer") {
        const run = tag(model, "run"), phase = tag(model, "phase");
        if (run !== null) {
          const ink = colour("run-" + (Number(run) % 6 + 1));
          model.glyph.setv(model.glyph.type === "Line" ? {line_color: ink} : {line_color: ink, fill_color: ink});
        } else if (phase !== null) {
          model.glyph.setv({fill_color: colour(phase), line_color: colour("page"), height: narrow.matches ? 0.4 : 0.62});
        } else {
          model.glyph.setv({fill_color: colour("bad"), line_color: colour("page")});
        }
      }
    }
  }

  function choose(models) {
    const legend = document.querySelector(".legend");
    if (!legend) return;
    legend.hidden = false;
    const boxes = [...legend.querySelectorAll("input")];
    const show = () => {
      const shown = new Map(boxes.map((box) => [box.dataset.run, box.checked]));
      for (const model of models) {
        const run = model.type === "GlyphRenderer" ? tag(model, "run") : null;
        if (run !== null) model.visible = shown.get(run) && !model.tags.includes("off");
      }
    };
    for (const box of boxes) box.addEventListener("change", show);
    for (const button of legend.querySelectorAll("button")) {
      button.addEventListener("click", () => { for (const box of boxes) box.checked = button.dataset.all === "1"; show(); });
    }
  }

  function control(figure, plot) {
    const controls = figure.querySelector(".controls");
    if (!controls) return;
    controls.hidden = false;
    const on = (kind, change) => {
      const found = controls.querySelector("[data-" + kind + "]");
      if (!found) return;
      found.addEventListener("change", () => change(found));
      if (found.checked || found.selectedIndex > 0) change(found);  // browsers keep the state of a page that is loaded again
    };
    on("log", (box) => {
      const model = (name) => new (Bokeh.Models.get(name))();
      const ticker = model(box.checked ? "LogTicker" : "BasicTicker");
      ticker.desired_num_ticks = 6;
      plot.y_range.scale_hint = "auto";
      plot.y_scale = model(box.checked ? "LogScale" : "LinearScale");
      for (const each of [plot.left[0], ...plot.center.filter((grid) => grid.dimension === 1)]) each.ticker = ticker;
      plot.y_range.reset();
    });
    on("smooth", (select) => {
      const renderers = plot.renderers.filter((each) => tag(each, "run") !== null);
      const shown = new Map(renderers.filter((each) => each.glyph.type === "Line" && !each.tags.includes("smooth")).map((each) => [tag(each, "run"), each.visible]));
      for (const each of renderers) {
        if (!each.tags.includes("smooth")) {
          const alpha = select.value ? 0.25 : 1;
          each.glyph.setv(each.glyph.type === "Line" ? {line_alpha: alpha} : {line_alpha: alpha, fill_alpha: alpha});
          continue;
        }
        each.tags = each.tags.filter((word) => word !== "off").concat(select.value ? [] : ["off"]);
        each.visible = Boolean(select.value) && shown.get(tag(each, "run"));
        if (select.value) each.glyph.y = {field: select.value};
      }
    });
    on("y", (select) => {
      for (const each of plot.renderers) each.glyph.y = {field: select.value};
    });
  }

  const details = () => {
    const wanted = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (wanted && wanted.tagName === "DETAILS") wanted.open = true;
  };
  window.addEventListener("hashchange", details);
  details();
  requestAnimationFrame(() => setTimeout(start, 0));
})();
