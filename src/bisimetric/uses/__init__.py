"""What a distance is good for: each use with what it promises and what it kept."""
