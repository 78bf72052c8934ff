#include "vocabulary.h"

#include <gannet/error.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unordered_map>

namespace translation {
namespace {

using gannet::Error;
using gannet::ErrorCode;

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& all) : all_(all) {}
  bool done() const override { return at_ >= all_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return all_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& all_;
  size_t at_ = 0;
};

}  // namespace

void Vocabulary::train(const std::vector<std::string>& sentences, int64_t size, const std::string& path) {
  Sentences iterator(sentences);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{{"model_type", "unigram"},
                                                   {"vocab_size", std::to_string(size)},
                                                   {"hard_vocab_limit", "false"},
                                                   {"character_coverage", "1.0"},
                                                   {"pad_id", "0"},
                                                   {"eos_id", "1"},
                                                   {"unk_id", "2"},
                                                   {"bos_id", "-1"},
                                                   {"num_threads", "1"},
                                                   {"minloglevel", "2"}},
      &iterator, &model);
  if (!status.ok())
    throw Error(ErrorCode::kArgument,
                "SentencePiece cannot train a vocabulary of " + std::to_string(size) + " pieces on " +
                    std::to_string(sentences.size()) + " sentences: " + status.ToString(),
                "give more sentences, a model with a larger vocab_size, or a trained vocabulary by --tokenizer_name");
  const std::filesystem::path file = path, beside = path + ".tmp";
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  {
    std::ofstream out(beside, std::ios::binary);
    out << model;
    out.flush();
    if (!out) throw Error(ErrorCode::kIo, "cannot write " + path, "is the disk full, or the folder read-only?");
  }
  std::filesystem::rename(beside, file);
}

Vocabulary::Vocabulary(const std::string& path) : pieces_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  if (!std::filesystem::exists(path))
    throw Error(ErrorCode::kNotFound, "there is no vocabulary " + path, "name a folder with spiece.model by --tokenizer_name");
  if (const auto status = pieces_->Load(path); !status.ok())
    throw Error(ErrorCode::kCorrupt, path + " is not a SentencePiece model: " + status.ToString(), "take the file again");
  if (pieces_->eos_id() < 0 || pieces_->pad_id() < 0)
    throw Error(ErrorCode::kCorrupt, path + " lacks the token that ends a text, or the one that pads",
                "T5's vocabularies have both: train with pad_id 0 and eos_id 1");
}

Vocabulary::~Vocabulary() = default;

std::vector<int64_t> Vocabulary::encode(const std::string& text, int64_t longest) const {
  std::vector<int> pieces;
  if (const auto status = pieces_->Encode(text, &pieces); !status.ok())
    throw Error(ErrorCode::kArgument, "SentencePiece cannot cut '" + text + "': " + status.ToString());
  pieces.resize(static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(pieces.size()), longest - 1)));
  std::vector<int64_t> tokens(pieces.begin(), pieces.end());
  tokens.push_back(end());
  return tokens;
}

std::string Vocabulary::decode(const std::vector<int64_t>& tokens) const {
  std::vector<int> pieces;
  for (const int64_t token : tokens)
    if (token >= 0 && token < size() && token != pad() && token != end() && token != pieces_->unk_id())
      pieces.push_back(static_cast<int>(token));
  std::string text;
  if (const auto status = pieces_->Decode(pieces, &text); !status.ok())
    throw Error(ErrorCode::kArgument, "SentencePiece cannot make a text of tokens: " + status.ToString());
  return text;
}

int64_t Vocabulary::size() const { return pieces_->GetPieceSize(); }
int64_t Vocabulary::pad() const { return pieces_->pad_id(); }
int64_t Vocabulary::end() const { return pieces_->eos_id(); }

}  // namespace translation
