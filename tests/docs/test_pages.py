"""What pages name is there: files, links, anchors, verbs, options, values keys, make targets."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from launcher.cli.main import VERBS
from launcher.config.checks.rules import schema
from launcher.config.checks.schema import violations
from tests.docs.commands import is_key, problems, sections
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
    # Files of the reader's: those that a page shows, names, or has a command write.
    files = {block.file for each in PAGES for block in each.blocks if block.file}
    files |= {word for word in shown.words if re.fullmatch(r"[\w-]+\.yaml", word)}
    scripts = [block for block in shown.blocks if block.language == "sh"]  # console is run
    files |= {file for script in scripts for file in re.findall(r"--write (\S+)", script.text)}
    assert [f"line {script.line}: {said}" for script in scripts for said in problems(script.text, files)] == []


@every_page
def test_the_values_it_shows_have_such_keys(shown: Page) -> None:
    """Values files of runs and of queues: every key is there and takes such a value."""
    wrong = []
    for block in shown.blocks:
        if block.language != "yaml":
            continue
        for tree in yaml.safe_load_all(block.text):
            if not isinstance(tree, dict) or "apiVersion" in tree:
                continue  # a manifest
            charts = [chart for chart in ("run", "queues") if tree.keys() <= schema(chart)["properties"].keys()]
            found = {chart: [v for v in violations(schema(chart), tree) if v.rule != "missing-key"] for chart in charts}
            if not charts:
                wrong.append(f"line {block.line}: neither a run nor queues have all of {', '.join(tree)}")
            elif all(found.values()) is not ("wrong" in block.options):
                wrong.append(f"line {block.line}: {found}")
    assert wrong == []


@every_page
def test_what_its_sentences_name_is_there(shown: Page) -> None:
    """Verbs with their options, values keys, and files of the checkout, where they stand as code in a sentence."""
    tops = "|".join(re.escape(path.name) for path in CHECKOUT.iterdir() if not path.name.startswith("."))
    wrong = []
    for word in shown.words:
        if word.startswith("launcher ") and (verb := word.split()[1]).isalpha() and verb.islower():
            if verb not in VERBS:
                wrong.append(f"launcher {verb}")
            wrong += [f"{word}: {option}" for option in re.findall(r"--[a-z-]+", word) if not has_option(verb, option)]
        elif re.fullmatch(rf"({'|'.join(sections())})(\.[A-Za-z_][\w-]*)+", word):
            if not is_key(word) and not re.search(r"\.(yaml|json|jsonl)$", word):
                wrong.append(word)
        elif re.fullmatch(rf"({tops})/[\w./-]*", word) and not (CHECKOUT / word).exists():
            wrong.append(word)
    assert wrong == []


def has_option(verb: str, option: str) -> bool:
    from importlib import import_module

    command: Any = import_module(f"launcher.cli.commands.{verb}").command
    params = [*command.params, *(p for sub in getattr(command, "commands", {}).values() for p in sub.params)]
    return option == "--help" or any(option in param.opts for param in params)


def test_every_page_is_in_the_table_of_contents() -> None:
    index = page(DOCS / "index.md")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in index.links}
    assert [each.name for each in PAGES if each.path not in (README, index.path) and each.path not in linked] == []


def test_every_verb_is_in_the_readme() -> None:
    text = page(README).text
    for verb in VERBS:
        assert re.search(rf"^\|.*`{verb} ?[^`]*`", text, re.MULTILINE), f"README does not tell of launcher {verb}"


def test_the_readme_leads_to_the_pages() -> None:
    assert "docs/index.md" in page(README).links


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("launcher submitt -f quickstart", "launcher has no verb submitt"),
        ("launcher submit --detatch -f quickstart", "No such option"),
        ("launcher submit -f values/nosuch.yaml", "values/nosuch.yaml is not there"),
        ("launcher submit -f quickstart --set train.stepz=1", "no values key train.stepz"),
        ("launcher install queues -f queues/one-team --set run.name=x", "no values key run.name"),
        ("launcher logs", "Missing argument"),
        ("make nosuch", "make has no target nosuch"),
        ("helm template x charts/nosuch", "charts/nosuch is not there"),
        ("kubctl get pods", "nobody knows the program kubctl"),
    ],
)
def test_what_is_wrong_is_found(typed: str, says: str) -> None:
    assert says in "\n".join(problems(typed))


def test_what_is_right_is_not() -> None:
    text = """\
# The platform team:
launcher install queues -f values/queues/three-teams.yaml -n slipway \\
    --timeout 0
launcher submit -f models/llama3.1-8b -f mine.yaml --set train.steps=10 --name NAME && launcher wait NAME
KUBECONFIG=x kubectl -n research get workloads | cat
"""
    assert problems(text, {"mine.yaml"}) == []
