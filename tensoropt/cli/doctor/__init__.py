"""``tensoropt doctor``: what is installed here, and whether it works."""
