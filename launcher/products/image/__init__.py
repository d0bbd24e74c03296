"""The image of every pod: built with an available tool, tagged by content, pushed, and recorded in a values file."""
