"""Many devices: meshes of few axes, refined from coarse to fine."""
