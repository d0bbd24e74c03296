"""Write launcher/config/maxtext/{keys,models}.json from the installed MaxText (`make keys`)."""
