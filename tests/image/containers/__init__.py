"""Pods of a rendered chart as real containers: what a kubelet, a network and two controllers do, on one machine.

node.py      the machine: a folder, a network of its own, and that nothing of it is left behind
network.py   network namespaces on a bridge, and asking over HTTP from inside them; names.py: the cluster's DNS
runtime.py   one container, by runc, from the image's files; security.py: its security context in runc's terms
pod.py       one pod, as a kubelet keeps it, with volumes.py, probes.py and manifests.py
kuberay.py   what KubeRay makes of a RayJob
jobset.py    what the JobSet and Job controllers make of a JobSet
team.py      a team's runs, rendered from charts/run, and what they leave; fixtures.py: what tests share
"""
