"""launcher presets."""

from __future__ import annotations

from launcher import paths
from tests.cli.conftest import Launcher


def test_every_preset_is_listed_with_a_sentence(launcher: Launcher) -> None:
    found = launcher("presets", "-o", "json").json
    assert [each["name"] for each in found] == paths.presets()
    assert [each["name"] for each in found if not 10 < len(each["about"]) < 130] == []
    by_name = {each["name"]: each for each in found}
    slice_ = by_name["slices/v6e-4x4"]
    assert (slice_["accelerator"], slice_["topology"], slice_["hosts"], slice_["chips"]) == ("v6e", "4x4", 4, 16)
    model = by_name["models/llama3.1-8b"]
    assert (model["about"], model["hosts"], model["chips"]) == (
        "Llama 3.1 8B as in Google's recipe for v6e-8 and v6e-16",
        None,
        None,
    )
    assert (by_name["quickstart"]["hosts"], by_name["quickstart"]["chips"]) == (2, None)


def test_a_part_of_a_name_selects(launcher: Launcher) -> None:
    result = launcher("presets", "tuned")
    assert (result.code, result.err) == (0, "")
    head, *rows = result.out.splitlines()
    assert head.split() == ["NAME", "HOSTS", "CHIPS", "ABOUT"]
    assert len(rows) == 6
    assert rows[0].split(maxsplit=3) == [
        "tuned/llama3.1-70b-v5e-16x16",
        "64",
        "256",
        "Llama 3.1 70B on v5e 16x16, tuned by `launcher forecast`, on top of its model's values",
    ]


def test_an_unknown_word(launcher: Launcher) -> None:
    result = launcher("presets", "gpt5")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        'Error: No preset has "gpt5" in its name.\n'
        "Hint: Use launcher presets, or one of its folders: clusters, finetune, models, queues, serve, slices, "
        "storage, tuned, tutorials.\n"
    )
