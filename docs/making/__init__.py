"""What makes the generated parts of the documentation: tables, reference pages and drawings."""
