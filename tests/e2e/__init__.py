"""`make e2e`: Slipway on a cluster with the real Kueue, JobSet and KubeRay (docs/how-to/e2e.md).

__main__.py  what `make e2e` starts: looks at the cluster, runs the tests, and removes all that they made
settings.py  what the environment says: SLIPWAY_E2E_…
facts.py     what the cluster has
needs.py     what a test needs of it, and what of that is lacking
bench.py     the launcher in a process of its own, as a user has it; waits that say what they waited for
site.py      values files of the suite, and the objects that a test prepares beside the launcher
leftovers.py what one run of the suite has made in the cluster, and how it is removed
release.py   the charts as they were in the release before this one
stand_ins/   controllers that only imitate the real ones, to test the suite where there are none (self_test.py)
kind         a script: a cluster with kind that has all that the tests need
"""
