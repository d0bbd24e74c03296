"""The command line: options, output for people, exit codes; one file per verb in commands/.

It calls launcher.api and prints the result. No rule, no request to a cluster and no Helm command is here.
"""
