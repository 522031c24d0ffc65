-- Rows of the inbox that were rejected are listed in their order, page by page.
CREATE INDEX ON forebay.inbox_rejected (id);
