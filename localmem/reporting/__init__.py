"""Reports of measurements: sections and pages, plots, bootstrap intervals, and the machine measured on."""
