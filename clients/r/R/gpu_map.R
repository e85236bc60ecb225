gpu_map <- function(x, f, ..., .pools = NULL, .seed = TRUE, .relay = TRUE) {
  said <- if (is.list(f)) as.list(substitute(f))[-1L] else list(substitute(f))
  stages <- if (is.list(f)) lapply(unname(f), match.fun) else list(match.fun(f))
  if (length(stages) == 0L) stop("`f` must be a function, or a list of some", call. = FALSE)
  if (length(stages) > 1L && length(list(...)) > 0L) {
    stop("further arguments go with one function; in a list write function(x) f(x, ...)", call. = FALSE)
  }
  if (!is.null(.pools) && !(is.character(.pools) && length(.pools) == length(stages) && !anyNA(.pools))) {
    stop("`.pools` must be a pool for each function, such as c(\"cpu\", \"gpu\")", call. = FALSE)
  }
  plain <- length(said) == length(stages) & vapply(said[seq_along(stages)], is.name, NA)
  names <- ifelse(plain, as.character(said[seq_along(stages)]), "f")
  over(x, stages, list(...), names, c(daemons$words), .seed, .relay, .pools)
}

# The results of the stages, of which most maps have one, over x in slots as the words say.
over <- function(x, stages, more, names, words, seed = TRUE, relayed = TRUE, pools = NULL) {
  whether(".relay", relayed)
  items <- if (!is.vector(x) || is.object(x)) as.list(x) else x
  results <- stats::setNames(vector("list", length(items)), names(items))
  if (length(items) == 0L) return(results)
  drawn <- streams(length(items), seed)
  files <- make.unique(safe(names), "-")
  folder <- task_of(stages, more, files, items, drawn$states)
  tasks <- paste0(file.path(folder, files), ".R:run", if (!is.null(pools)) paste0("@", pools))
  process <- start(c("map", tasks, "--in", file.path(folder, "items.jsonl"), "--local", "--out", "-", pass(), words))
  on.exit(end(process))
  output <- if (!relayed) character(length(items))
  failed <- integer()
  while (!is.null(lines <- lines_of(process))) {
    for (line in lines) {
      row <- jsonlite::parse_json(line)
      i <- row$index + 1L
      outcome <- NULL
      if (is.null(row$fault)) {
        outcome <- decode(row$value)
        # A result that is NULL has its place, too.
        results[i] <- list(outcome$value)
      } else {
        results[[i]] <- fault(row, sprintf("item %d: ", i))
        failed <- c(failed, i)
      }
      if (relayed) relay(row$output, outcome, i) else if (!is.null(row$output)) output[[i]] <- row$output
    }
  }
  tryCatch(check(process), gpumux_command = function(e) {
    # The call itself was wrong: there is nothing to go on with.
    if (e$status == 2L) unlink(folder, recursive = TRUE)
    stop(e)
  })
  unlink(folder, recursive = TRUE)
  attr(results, "output") <- output
  if (length(failed) > 0L) {
    first <- conditionMessage(results[[failed[[1L]]]])
    stop(structure(class = c("gpumux_error", "error", "condition"), list(
      message = sprintf("%d of %d items failed; the first is %s", length(failed), length(items), first), call = NULL, results = results
    )))
  }
  # Until here the same call has the same random numbers.
  if (!is.null(drawn)) set_state(drawn$after)
  results
}

# The condition of a row with a fault.
fault <- function(row, whose = "") {
  text <- paste(c(row$fault$kind, row$fault$class, row$fault$message), collapse = ": ")
  if (!is.null(row$fault$hint)) row$fault$hint <- in_r(row$fault$hint)
  structure(class = c("gpumux_fault", "error", "condition"), list(
    message = paste(c(paste0(whose, text), row$fault$hint), collapse = "; "), call = NULL, fault = row$fault,
    output = paste(row$output, collapse = "")
  ))
}

# Environment variables of this session that the functions see, beside those that every task has.
pass <- function() {
  asked <- getOption("gpumux.pass_env", character())
  if (!is.character(asked) || anyNA(asked)) {
    stop("options(gpumux.pass_env) must be names of environment variables, such as c(\"HF_TOKEN\", \"HF_HOME\")", call. = FALSE)
  }
  names <- unique(c("HOME", grep("^RETICULATE_", names(Sys.getenv()), value = TRUE), asked))
  c("--pass-env", paste(names, collapse = ","))
}

# The folder of the task and its items. Its name is a hash of them, so that the same call, after a crash too, finds its map.
task_of <- function(stages, more, files, items, states) {
  cache <- tools::R_user_dir("gpumux", "cache")
  dir.create(cache, recursive = TRUE, showWarnings = FALSE)
  made <- tempfile("new-", cache)
  dir.create(made, mode = "0700")
  on.exit(unlink(made, recursive = TRUE))
  for (k in seq_along(stages)) write_stage(made, stages[[k]], more, files[[k]], k == length(stages))
  each <- function(i) encode(list(x = items[[i]], state = states[[i]]))
  writeLines(paste0('"', vapply(seq_along(items), each, ""), '"'), file.path(made, "items.jsonl"))
  files <- sort(list.files(made, full.names = TRUE))
  writeLines(tools::md5sum(files), file.path(made, "sums"))
  folder <- file.path(cache, tools::md5sum(file.path(made, "sums"))[[1L]])
  # One that is there is of the same call, and a map may run in it.
  if (!dir.exists(folder) && !file.rename(made, folder)) stop("cannot make ", folder, call. = FALSE)
  folder
}

# The R file of a stage in a folder, with its function beside it. Stages before the last give an item of the next one, which draws on.
write_stage <- function(folder, f, more, file, last) {
  carried <- carry(if (length(more) == 0L) f else bound(f, more, alist(x = )))
  rds <- paste0(file, ".rds")
  saveRDS(carried$f, file.path(folder, rds), version = 2L)
  writeLines(c(
    sprintf("library(%s)", carried$packages),
    source_of(c("perform", "draw_from", "encode", "decode"),
      # The hash makes another function another edition of this file.
      sprintf("f <- readRDS(\"%s\") # %s", rds, tools::md5sum(file.path(folder, rds))[[1L]]),
      "function(text) {",
      "  item <- decode(text)",
      "  outcome <- perform({",
      "    draw_from(item$state)",
      "    f(item$x)",
      "  })",
      if (last) "  encode(outcome)" else
        "  encode(list(x = outcome$value, state = if (!is.null(item$state)) get(\".Random.seed\", globalenv())))",
      "}"
    )
  ), file.path(folder, paste0(file, ".R")))
}

# A function of the formals that calls f with them and more, which it has with it.
bound <- function(f, more, formals) {
  each <- paste0("more", seq_along(more))[seq_along(more)]
  call <- as.call(c(list(quote(f)), lapply(names(formals), as.name), stats::setNames(lapply(each, as.name), names(more))))
  env <- list2env(c(list(f = f), stats::setNames(more, each)), parent = globalenv())
  eval(call("function", as.pairlist(formals), call), env)
}

safe <- function(name) gsub("[^A-Za-z0-9_.]", "_", name)
