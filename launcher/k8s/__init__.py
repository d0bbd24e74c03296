"""The Kubernetes client: kubeconfig, requests, errors, and readers of Kubernetes' and Kueue's objects.

Only this package imports `kubernetes`. It knows nothing of runs, charts or values.
"""
