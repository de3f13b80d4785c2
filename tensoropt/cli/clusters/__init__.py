"""``tensoropt clusters``: the descriptions of clusters that plans are made for."""
