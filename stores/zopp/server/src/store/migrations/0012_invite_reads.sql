-- How often the wrapped key of an invite was handed out. An invite with a limit is used up by that, too.
ALTER TABLE invites ADD COLUMN reads INTEGER NOT NULL DEFAULT 0;
