"""Runs the pods of a rendered chart as real containers on one machine, with the work of a kubelet and two controllers.

node.py      the machine: a folder, a network, and the cleanup of both
network.py   network namespaces on a bridge, and HTTP requests from inside them; dns.py: the cluster's DNS
runtime.py   one container of runc, from the image's files; security.py: its security context for runc
pod.py       one pod, as a kubelet runs it, with volumes.py, probes.py and manifests.py
kuberay.py   runs a RayJob as KubeRay does
jobset.py    runs a JobSet as the JobSet and Job controllers do
team.py      a team's runs, rendered from charts/run, and their output; fixtures.py: shared fixtures
"""
