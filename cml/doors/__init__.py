"""What people call, and what joins the core and its capabilities."""
