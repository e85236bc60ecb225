package columns

// MostUnpacked is how much memory any row group may take.
var MostUnpacked = &mostUnpacked
