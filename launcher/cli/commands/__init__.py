"""The verbs of the command line, one file each; `command` is the click command."""
