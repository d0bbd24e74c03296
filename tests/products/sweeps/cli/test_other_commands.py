"""The verbs of products that use the best run of a sweep, or all of its runs."""

from __future__ import annotations

from tests.cli.conftest import SHORT, Launcher


def test_verbs_for_runs_accept_a_sweep(launcher: Launcher) -> None:
    """The runs of this test have no checkpoints."""
    text = SHORT.replace("'echo hello'", "'cat evaluated > $SLIPWAY_RUN_FOLDER/metrics.jsonl'")
    (launcher.folder / "evaluated").write_text('{"step": 1, "eval_loss": 3.5}\n')
    file = launcher.write("run.yaml", text.replace("storage:", "worker: {env: {NAME: ''}}\nstorage:"))
    assert launcher("submit", "-f", file, "--sweep", 'worker.env.NAME="a","b"').code == 0
    for best in (("export", "demo", "--to", "out"), ("generate", "demo", "Hello"), ("serve", "sweep/demo")):
        refused = launcher(*best)
        assert (refused.code, 'The best run of the sweep "demo" is demo-1.' in refused.err) == (1, True), refused.err
    assert '"demo-1" has no checkpoints' in launcher("checkpoints", "demo").err
    assert "demo-1 has no results" in launcher("eval", "demo", "--compare").err
    assert 'The run "demo-1" has written nothing for TensorBoard' in launcher("tensorboard", "demo").err
