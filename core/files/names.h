// Messages for names in a file that do not match the model's: examples, and a prefix that fixes
// them.
#pragma once

#include <string>
#include <vector>

namespace gannet::files {

// Returns "a, b, c and 12 more"; "none" for an empty list.
std::string some_names(const std::vector<std::string>& names, size_t most = 3);

// Returns the --rename option of `gannet checkpoint import` that makes at least nine in ten names
// match: "module.=" if the file has an extra prefix (torch's DataParallel, torch.compile, a
// wrapper), "=model." if it lacks one, "" if no prefix fits.
std::string rename_that_fits(const std::vector<std::string>& in_file, const std::vector<std::string>& in_model);
// Returns a sentence that suggests this option, for the beginning of an error's next step; "" if no
// prefix fits.
std::string rename_advice(const std::string& path, const std::vector<std::string>& in_file,
                          const std::vector<std::string>& in_model);

}  // namespace gannet::files
