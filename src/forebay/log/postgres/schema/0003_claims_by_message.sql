-- The claims that hold a message are found without walking over all that are open.
CREATE INDEX claim_first ON forebay.claim (grp, first);
