"""Fakes of Kueue, JobSet, KubeRay, a kubelet and the trainer. They test the suite, not these programs.

The suite is for clusters with the real controllers, which are not available where Slipway's own tests run. The fakes
make it possible to test the suite's own logic there: order, waits, cleanup, interruptions. They do only what the
suite's tests observe, with the messages of the recordings (tests/upstream). They leave out cohorts, borrowing,
admission checks, topologies, webhooks, conditions that no test reads, Ray itself, and all delays of the real ones. A
replica of a served model is a process with the real engine and API, without Ray Serve.
"""
