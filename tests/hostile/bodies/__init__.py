"""Valid deep bodies of every route and messages of every socket, of which one field is broken."""
