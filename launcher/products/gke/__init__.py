"""A GKE cluster as a plan: node pools, service accounts, IAM and a bucket that follow from the values of the queues.

values (gke, flavors, clusterQueues, teams) ──plan.py──> Plan: the resources, in the order of their creation
    Plan ──commands.py──> gcloud and kubectl commands        Plan ──terraform.py──> Terraform's JSON
    Plan and actual.py (what is there) ──steps.py──> Steps, which `up` runs one by one
"""
