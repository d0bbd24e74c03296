"""The Helm client: renders and installs Slipway's charts, and compares them with a cluster.

Only this package runs Helm. Which charts make a release, and when, is in launcher.releases.
"""
