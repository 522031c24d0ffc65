-- Groups that go on from another place.

-- `sought` counts how often; `earlier` is how many messages were accepted before `start`, which moves with it.
ALTER TABLE forebay.consumer_group
    ADD COLUMN sought int NOT NULL DEFAULT 0,
    ADD COLUMN earlier bigint NOT NULL DEFAULT 0;
