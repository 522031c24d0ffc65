-- Groups that go on from another place.

-- `sought` counts how often; `earlier` is how many messages were accepted before `start`, which moves with it.
ALTER TABLE consumer_group ADD COLUMN sought INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumer_group ADD COLUMN earlier INTEGER NOT NULL DEFAULT 0;
