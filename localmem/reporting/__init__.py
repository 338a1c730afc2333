"""Reports of measurements: sections and pages, plots, intervals, and the machine measured on."""
