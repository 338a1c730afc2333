"""What measurements are reported with: plots, tables, intervals, and the machine they were made on."""
