"""Reading other systems' launch scripts into layouts; nothing in a script is ever executed, sourced or fetched."""
