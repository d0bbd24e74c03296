"""`make e2e`: Slipway on a cluster with the real Kueue, JobSet and KubeRay (docs/how-to/test-a-cluster.md).

__main__.py  the command of `make e2e`: inspects the cluster, runs the tests, and removes all objects that they created
settings.py  the environment variables SLIPWAY_E2E_…
facts.py     what the cluster has
needs.py     what a test needs from the cluster, and which of these needs are not met
cli.py       the launcher as a separate process, as a user runs it, and waits whose errors name the expected condition
members.py   the launcher as a member of a team: a service account with a short-lived token
teams.py     the suite's values files, and the objects that a test creates without the launcher
leftovers.py what a run of the suite created in the cluster, and how it is removed
release.py   the charts of the release before this one
fakes/       fake controllers that test the suite itself on a cluster without the real ones
             (tests/cluster/test_e2e_suite.py)
kind         a script that creates a kind cluster with everything that the tests need
"""
