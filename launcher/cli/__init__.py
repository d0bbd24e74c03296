"""The command line: options, output for people, exit codes; one file per verb in commands/.

It calls launcher.api and prints the result. It contains no rules, no requests to a cluster and no Helm commands.
"""
