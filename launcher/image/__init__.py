"""The image that every pod starts from: built with the tool that is there, tagged by content, pushed, written down."""
