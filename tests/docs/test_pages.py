"""Everything that pages name exists: files, links, anchors, verbs, options, values keys, make targets."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
import yaml

from launcher.cli.main import cli
from launcher.cli.verbs import verbs
from launcher.config.checks.schema import violations
from tests.docs.commands import EXAMPLE, is_key, problems, schema_of, sections
from tests.docs.pages import CHECKOUT, DOCS, README, Page, page, pages

PAGES = pages()
IDS = [each.name for each in PAGES]
every_page = pytest.mark.parametrize("shown", PAGES, ids=IDS)


@every_page
def test_its_links_lead_somewhere(shown: Page) -> None:
    dead = []
    for link in shown.links:
        if re.match(r"(https?|mailto):", link):
            continue
        path, _, anchor = link.partition("#")
        target = (shown.path.parent / path).resolve() if path else shown.path
        if not target.exists() or (anchor and anchor not in page(target).anchors):
            dead.append(link)
    assert dead == []


@every_page
def test_the_commands_it_shows_can_be_typed(shown: Page) -> None:
    # The reader's files: a page shows them, names them, or has a command that writes them.
    files = {block.file for each in PAGES for block in each.blocks if block.file}
    files |= {word for word in shown.words if re.fullmatch(r"[\w-]+\.yaml", word)}
    scripts = [block for block in shown.blocks if block.language == "sh"]  # test_local_pages.py runs console blocks
    files |= {file for script in scripts for file in re.findall(r"--write (\S+)", script.text)}
    assert [f"line {script.line}: {problem}" for script in scripts for problem in problems(script.text, files)] == []


@every_page
def test_the_values_it_shows_have_such_keys(shown: Page) -> None:
    """In values files of runs and of queues, every key exists and accepts the value."""
    wrong = []
    for block in shown.blocks:
        if block.language != "yaml":
            continue
        for tree in yaml.safe_load_all(block.text):
            if not isinstance(tree, dict) or "apiVersion" in tree:
                continue  # a manifest
            charts = [chart for chart in ("run", "gke") if tree.keys() <= schema_of(chart)["properties"].keys()]
            found = {
                chart: [v for v in violations(schema_of(chart), tree) if v.rule != "missing-key"] for chart in charts
            }
            if not charts:
                wrong.append(f"line {block.line}: neither a run nor queues have all of the keys {', '.join(tree)}")
            elif all(found.values()) is not ("wrong" in block.options):
                wrong.append(f"line {block.line}: {found}")
    assert wrong == []


@every_page
def test_what_its_sentences_name_is_there(shown: Page) -> None:
    """Verbs with their options, values keys, and files of the checkout in backticks exist."""
    tops = "|".join(re.escape(path.name) for path in CHECKOUT.iterdir() if not path.name.startswith("."))
    wrong = []
    for word in shown.words:
        if word.startswith("launcher ") and (verb := word.split()[1]).isalpha() and verb.islower():
            if verb not in (*verbs(), EXAMPLE):
                wrong.append(f"launcher {verb}")
            wrong += [f"{word}: {option}" for option in re.findall(r"--[a-z-]+", word) if not has_option(verb, option)]
        elif re.fullmatch(rf"({'|'.join(sections())})(\.[A-Za-z_][\w-]*)+", word):
            if not is_key(word) and not re.search(r"\.(yaml|json|jsonl)$", word):
                wrong.append(word)
        elif re.fullmatch(rf"({tops})/[\w./-]*", word) and not (CHECKOUT / word).exists():
            wrong.append(word)
    assert wrong == []


def has_option(verb: str, option: str) -> bool:
    command: Any = cli.get_command(click.Context(cli), verb)
    params = [*command.params, *(p for sub in getattr(command, "commands", {}).values() for p in sub.params)]
    return option == "--help" or any(option in param.opts for param in params)


def test_every_page_is_in_the_table_of_contents() -> None:
    index = page(DOCS / "index.md")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in index.links}
    assert [each.name for each in PAGES if each.path not in (README, index.path) and each.path not in linked] == []


def test_every_verb_is_in_the_quick_reference() -> None:
    text = page(DOCS / "quick-reference.md").text
    for verb in verbs():
        assert re.search(rf"^\|.*`{verb} ?[^`]*`", text, re.MULTILINE), f"the table does not have launcher {verb}"


def test_the_readme_is_short_and_leads_to_the_pages() -> None:
    assert page(README).text.count("\n") <= 100
    assert {"docs/index.md", "docs/quick-reference.md"} <= set(page(README).links)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("launcher submitt -f quickstart", "launcher has no verb submitt"),
        ("launcher submit --detatch -f quickstart", "No such option"),
        ("launcher submit -f values/nosuch.yaml", "values/nosuch.yaml does not exist"),
        ("launcher submit -f quickstart --set train.stepz=1", "unknown values key train.stepz"),
        ("launcher install queues -f queues/one-team --set run.name=x", "unknown values key run.name"),
        ("launcher logs", "Missing argument"),
        ("make nosuch", "make has no target nosuch"),
        ("helm template x charts/nosuch", "charts/nosuch does not exist"),
        ("kubctl get pods", "unknown program kubctl"),
    ],
)
def test_what_is_wrong_is_found(typed: str, problem: str) -> None:
    assert problem in "\n".join(problems(typed))


def test_what_is_right_is_not() -> None:
    text = """\
# The platform team:
launcher install queues -f values/queues/three-teams.yaml -n slipway \\
    --timeout 0
launcher submit -f models/llama3.1-8b -f mine.yaml --set train.steps=10 --name NAME && launcher wait NAME
KUBECONFIG=x kubectl -n research get workloads | cat
"""
    assert problems(text, {"mine.yaml"}) == []
