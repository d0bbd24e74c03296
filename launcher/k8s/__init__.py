"""The Kubernetes client: kubeconfig, requests, errors, and readers for Kubernetes and Kueue objects.

Only this package imports `kubernetes`. It does not depend on runs, charts or values.
"""
