-- $1 lake. Returns every file in the manifest, also those that stopped counting.
SELECT path FROM lake_manifest WHERE pipeline = $1
