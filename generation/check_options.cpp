// Checks the arguments of generate() before the model is called.
#include <c10/util/StringUtil.h>
#include <gannet/error.h>
#include <gannet/generate.h>

#include <cmath>

#include "generation/adjustment.h"

namespace gannet::detail {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& next = "") {
  throw Error(ErrorCode::kArgument, "generate: " + what, next);
}

}  // namespace

void check(const GenerateOptions& options, const TokenLists& prompts, int64_t positions, int64_t vocabulary, bool has_encoder) {
  if (options.max_new_tokens < 1) refuse(c10::str("max_new_tokens is ", options.max_new_tokens), "ask for at least 1");
  if (options.num_beams < 1) refuse(c10::str("num_beams is ", options.num_beams), "1 is a search without beams");
  if (!std::isfinite(options.length_penalty))
    refuse(c10::str("length_penalty is ", options.length_penalty), "1 divides a beam's score by its length, 0 does not");
  if (options.num_beams > 1 && options.sample)
    refuse("beams are not drawn, and sample is true with num_beams above 1", "choose one of the two");
  if (!(options.temperature > 0))
    refuse(c10::str("temperature is ", options.temperature), "it must be above 0; sample = false takes the likeliest token");
  if (options.top_k < 0) refuse(c10::str("top_k is ", options.top_k), "0 draws among all tokens");
  if (!(options.top_p > 0 && options.top_p <= 1))
    refuse(c10::str("top_p is ", options.top_p), "it must be above 0, and at most 1");
  if (options.max_length < 0) refuse(c10::str("max_length is ", options.max_length), "0 leaves the limit to max_new_tokens");
  if (options.min_length < 0) refuse(c10::str("min_length is ", options.min_length), "0 lets a text end at once");
  if (options.min_new_tokens < 0) refuse(c10::str("min_new_tokens is ", options.min_new_tokens), "0 lets a text end at once");
  if (options.min_new_tokens > options.max_new_tokens)
    refuse(c10::str("min_new_tokens is ", options.min_new_tokens, ", and max_new_tokens ", options.max_new_tokens),
           "lower the one or raise the other");
  if (!(options.repetition_penalty > 0) || !std::isfinite(options.repetition_penalty))
    refuse(c10::str("repetition_penalty is ", options.repetition_penalty), "1 is none, and above 1 repeats less");
  if (options.no_repeat_ngram_size < 0)
    refuse(c10::str("no_repeat_ngram_size is ", options.no_repeat_ngram_size), "0 lets tokens repeat");
  if (has_encoder && generation::longest_text(options, 1) < 1)
    refuse(c10::str("max_length is ", options.max_length, ", and the decoder's first token counts"), "ask for at least 2");
  for (const int64_t token : options.stop_tokens)
    if (token < 0 || (vocabulary > 0 && token >= vocabulary))
      refuse(c10::str("stop_tokens has ", token, ", and ",
                      vocabulary > 0 ? c10::str("the model's vocabulary is 0 to ", vocabulary - 1)
                                     : std::string("no token is negative")),
             "no text would ever end by it: name the end token of this model's tokenizer");
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) refuse(c10::str("prompt ", i, " is empty"), "begin it with the model's token for a text's begin");
    const auto length = static_cast<int64_t>(prompts[i].size());
    const int64_t most = has_encoder ? options.max_new_tokens : generation::longest_text(options, length);
    if (most < 1)
      refuse(c10::str("prompt ", i, " has ", length, " tokens, and max_length is ", options.max_length,
                      ", of prompt and text together"),
             "shorten it, or raise max_length");
    if (positions > 0 && most > positions - length)
      refuse(c10::str("prompt ", i, " has ", length, " tokens, and with max_new_tokens ", most, " that is more than the model's ",
                      positions, " positions"),
             "shorten it, or lower max_new_tokens");
    for (size_t place = 0; place < prompts[i].size(); ++place) {
      const int64_t token = prompts[i][place];
      if (token < 0 || (vocabulary > 0 && token >= vocabulary))
        refuse(c10::str("prompt ", i, " has token ", token, " at place ", place, ", and ",
                        vocabulary > 0 ? c10::str("the model's vocabulary is 0 to ", vocabulary - 1)
                                       : std::string("no token is negative")),
               "use the tokenizer of this model; labels of -100 and padding do not belong into prompts");
    }
  }
}

}  // namespace gannet::detail
