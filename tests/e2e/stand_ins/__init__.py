"""Stand-ins for Kueue, JobSet, KubeRay, a kubelet and the trainer: they test the suite, and prove nothing of these.

The suite is for clusters with the real controllers, which cannot be had where Slipway's own tests run. So that its
own logic (orders, waits, cleaning, interruptions) is tested all the same, these do the little that its tests look at,
with the words that the recordings have (../shared/recordings). What they leave out: cohorts, borrowing, admission
checks, topologies, webhooks, conditions that nobody reads, Ray itself, and every delay that the real ones have.
"""
