"""How well embedders do: one file for each sort of data that they are measured on, and the page that shows it."""
