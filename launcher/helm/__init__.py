"""The Helm client: renders and installs Slipway's charts, and compares them with a cluster.

Only this package runs Helm. launcher.releases defines which charts are released, and when.
"""
