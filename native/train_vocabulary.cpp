#include "train_vocabulary.hpp"

#include <bit>

namespace gristmill::train {

namespace {
constexpr uint32_t kEmpty = UINT32_MAX;
constexpr uint64_t kFactor = 0xD6E8FEB86659FD93ull;
constexpr size_t kFirstSlots = 1 << 10;
}  // namespace

Vocabulary::Vocabulary(const std::vector<std::string>& tokens) {
    for (const std::string& token : tokens) append(token, hash_of(token));
}

Vocabulary::Hash Vocabulary::hash_of(std::string_view token) {
    Hash hash;
    for (char byte : token) hash = hash + Hash{static_cast<uint8_t>(byte) + uint64_t{1}, kFactor};
    return hash;
}

uint32_t Vocabulary::find(uint32_t left, uint32_t right) const {
    Hash hash = hashes_[left] + hashes_[right];
    std::string_view first = spelling(left), second = spelling(right);
    for (size_t slot = home(hash);; slot = (slot + 1) & (slots_.size() - 1)) {
        uint32_t id = slots_[slot];
        if (id == kEmpty) return size();
        if (hashes_[id].sum != hash.sum) continue;
        std::string_view token = spelling(id);
        if (token.size() == first.size() + second.size() && token.starts_with(first) && token.ends_with(second)) return id;
    }
}

void Vocabulary::add(uint32_t left, uint32_t right) {
    append(std::string(spelling(left)).append(spelling(right)), hashes_[left] + hashes_[right]);
}

void Vocabulary::append(std::string_view token, const Hash& hash) {
    uint32_t id = size();
    bytes_.append(token);
    ends_.push_back(bytes_.size());
    hashes_.push_back(hash);
    if (2 * hashes_.size() > slots_.size()) {
        grow();
    } else {
        place(id);
    }
}

void Vocabulary::grow() {
    slots_.assign(slots_.empty() ? kFirstSlots : slots_.size() * 2, kEmpty);
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots_.size()));
    for (uint32_t id = 0; id < size(); ++id) place(id);
}

void Vocabulary::place(uint32_t id) {
    if (spelling(id).empty()) return;  // no merge can spell it
    size_t slot = home(hashes_[id]);
    while (slots_[slot] != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = id;
}

}  // namespace gristmill::train
