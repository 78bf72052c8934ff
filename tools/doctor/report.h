// Formats a diagnosis for a terminal, an issue or a program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "doctor/diagnosis.h"

namespace gannet::doctor {

std::string as_text(const Diagnosis& diagnosis);
// Redacts the machine's and the user's names, home folders and addresses, with a note about that.
std::string as_markdown(const Diagnosis& diagnosis);
std::string as_json(const Diagnosis& diagnosis);

// Replaces each secret that is a whole word, longest first, and other users' names after /home/.
std::string without_secrets(std::string text, const std::vector<std::pair<std::string, std::string>>& secrets);

}  // namespace gannet::doctor
