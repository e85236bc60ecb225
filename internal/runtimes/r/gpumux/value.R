# Items from JSON, and values to JSON as the other runtimes write them. See docs/r.md.
#
# A number is written so that it reads as the same double.

item_of <- function(body) {
  text <- rawToChar(body)
  Encoding(text) <- "UTF-8"
  tryCatch(parsed(text), error = function(e) {
    stop("the item is not JSON that R reads: ", conditionMessage(e), call. = FALSE)
  })
}

parsed <- function(text) {
  if (!grepl("\"\\u00", text, fixed = TRUE)) return(jsonlite::parse_json(text, simplifyVector = TRUE))
  # There may be numbers that JSON lacks. They must be there before parse_json makes vectors, which is what simplify does.
  for (i in seq_along(lacking)) text <- gsub(lacking[[i]], sprintf("\"\\u0001%d\"", i), text, fixed = TRUE)
  asNamespace("jsonlite")$simplify(numbers(jsonlite::parse_json(text)))
}

lacking <- c("\"\\u004eaN\"", "\"\\u0049nfinity\"", "\"\\u002dInfinity\"")

numbers <- function(x) {
  if (is.list(x)) return(lapply(x, numbers))
  at <- if (is.character(x)) match(x, paste0("\001", 1:3)) else NA
  if (is.na(at)) x else c(NaN, Inf, -Inf)[[at]]
}

# The JSON of a value; place says where it lies in the result.
json <- function(x, place = "result") {
  if (is.null(x)) return("null")
  if (inherits(x, "POSIXlt")) x <- as.POSIXct(x)
  if (is.data.frame(x)) return(array_of(rows(x, place)))
  if (is.raw(x)) return(quoted(gsub("\n", "", jsonlite::base64_enc(x), fixed = TRUE)))
  each <- cells(x, place)
  if (length(dim(x)) > 1L) return(nested(array(each, dim(x))))
  if (is.list(x) || !is.null(names(x))) return(several(names(x), each))
  if (length(each) == 1L && !inherits(x, "AsIs")) each else array_of(each)
}

# The JSON of each element.
cells <- function(x, place) {
  if (inherits(x, "POSIXt")) x <- sub("\\.?0+Z$", "Z", format(as.POSIXct(x), "%Y-%m-%dT%H:%M:%OS6Z", tz = "UTC"))
  if (inherits(x, c("factor", "Date"))) x <- as.character(x)
  if (inherits(x, "difftime")) x <- as.numeric(x, units = "secs")
  if (is.list(x)) return(vapply(seq_along(x), function(i) json(x[[i]], paste0(place, step(names(x)[i], i))), ""))
  text <- if (inherits(x, "integer64")) as.character(x) else switch(typeof(x),
    logical = ifelse(x, "true", "false"),
    integer = sprintf("%d", x),
    double = digits(x),
    character = quoted(x),
    stop(place, " is a ", class(x)[[1L]], ", which JSON cannot hold; return vectors, lists or data frames", call. = FALSE)
  )
  text[is.na(x) & !nan(x)] <- "null"
  text
}

nan <- function(x) if (is.double(x)) is.nan(unclass(x)) else FALSE

step <- function(name, i) if (is.null(name) || is.na(name) || name == "") paste0("[[", i, "]]") else paste0("$", name)

digits <- function(x) {
  text <- sprintf("%.15g", x)
  lossy <- is.finite(x) & suppressWarnings(as.numeric(text)) != x
  text[lossy] <- sprintf("%.17g", x[lossy])
  text[nan(x)] <- lacking[[1L]]
  text[is.infinite(x)] <- ifelse(x[is.infinite(x)] > 0, lacking[[2L]], lacking[[3L]])
  text
}

array_of <- function(each) paste0("[", paste(each, collapse = ","), "]")

# An object where there are names, else an array.
several <- function(names, each) {
  if (is.null(names)) return(array_of(each))
  names <- ifelse(is.na(names) | names == "", as.character(seq_along(names)), names)
  if (anyDuplicated(names)) stop("the name ", names[[anyDuplicated(names)]], " is there twice, and JSON has each once", call. = FALSE)
  paste0("{", if (length(each) > 0L) paste0(quoted(names), ":", each, collapse = ","), "}")
}

# An object for each row of a data frame.
rows <- function(x, place) {
  columns <- lapply(names(x), function(name) {
    column <- x[[name]]
    within <- paste0(place, "$", name)
    if (is.data.frame(column)) rows(column, within) else unname(cells(column, within))
  })
  vapply(seq_len(nrow(x)), function(i) several(names(x), vapply(columns, `[[`, "", i)), "")
}

# A matrix is an array of its rows, and so on for more dimensions.
nested <- function(each) {
  if (length(dim(each)) < 2L || length(each) == 0L) return(array_of(each))
  array_of(apply(each, 1L, nested))
}

quoted <- function(text) {
  if (length(text) == 0L) return(character())
  text <- enc2utf8(text)
  if (!all(validUTF8(text))) stop("a text is not UTF-8, and JSON is; convert it with iconv()", call. = FALSE)
  text <- gsub('(["\\\\])', "\\\\\\1", text)
  if (any(grepl("[\001-\037]", text, useBytes = TRUE))) {
    for (code in 1:31) text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
  }
  paste0('"', text, '"')
}
