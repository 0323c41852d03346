"""What is measured of ragqa; each script writes one JSON file under docs/measurements/."""
