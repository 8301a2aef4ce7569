"""`bisimetric uses`: what a distance is good for."""
