"""What is counted and how: measures over plain numbers and ids. Know no data set and no model."""
