package columns

// MaxUnpacked is how much memory any row group may take.
var MaxUnpacked = &maxUnpacked
