// What is wrong with a vocabulary.
#pragma once
#include <stdexcept>

namespace gristmill {

// One that cannot be compiled; the message is for the user.
struct ModelError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace gristmill
