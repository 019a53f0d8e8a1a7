//! The colours of all pictures, so that a pass looks the same wherever it is shown.
//!
//! # Source
//!
//! Okabe and Ito 2008, *Color Universal Design*, <https://jfly.uni-koeln.de/color/>: colours that readers with any kind
//! of colour vision can tell apart; most passes have them. The other colours of passes, and the colours of lanes and of
//! parts, were found by computer. Each is near a colour of that set or of Tol 2021, *Colour Schemes*, SRON technical
//! note 09-002, and far from all others for readers of each kind (CIEDE2000 at least 9, with the dichromats of Vienot,
//! Brettel and Mollon 1999). A test checks this.

use std::fmt;

use ir::schedule::ActionKind;

use crate::timeline::Stream;

/// A colour of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rgb {
    /// Red, 0 to 255.
    pub red: u8,
    /// Green, 0 to 255.
    pub green: u8,
    /// Blue, 0 to 255.
    pub blue: u8,
}

impl Rgb {
    /// The colour of a hexadecimal number `0xRRGGBB`.
    pub const fn new(hex: u32) -> Self {
        Self { red: (hex >> 16) as u8, green: (hex >> 8) as u8, blue: hex as u8 }
    }

    /// Mix of this colour with `share` of `other`: 0 is this one, 1 the other.
    pub fn mix(self, other: Self, share: f64) -> Self {
        let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share) as u8;
        Self {
            red: mix(self.red, other.red),
            green: mix(self.green, other.green),
            blue: mix(self.blue, other.blue),
        }
    }

    /// Black or white, whichever has more contrast with this colour as a background.
    pub fn ink(self) -> Self {
        // Contrast with black and with white is equal at this luminance (WCAG 2.1).
        const EQUAL_CONTRAST: f64 = 0.179;
        if self.luminance() > EQUAL_CONTRAST { Self::BLACK } else { Self::WHITE }
    }

    /// Shade of this colour for passes of the `nth` of `count` stages of a rank: the later, the paler, as in the
    /// figures of Narayanan et al. 2021 (arXiv 2104.04473); with more than two stages, the first is darker, so that all
    /// can be distinguished.
    pub fn shaded(self, nth: u32, count: u32) -> Self {
        const DARKEST: f64 = 0.3;
        // Paler colours look like idle time.
        const PALEST: f64 = 0.55;
        let last = count.saturating_sub(1);
        if last == 0 {
            return self;
        }
        let darkest = if last > 1 { DARKEST } else { 0.0 };
        let share = f64::from(nth.min(last)) / f64::from(last);
        let shade = share * (PALEST + darkest) - darkest;
        let towards = if shade < 0.0 { Self::BLACK } else { Self::WHITE };
        self.mix(towards, shade.abs())
    }

    /// Contrast ratio of two colours, 1 to 21: ratio of the brightness of the brighter to the darker.
    ///
    /// # Source
    ///
    /// W3C 2018, *Web Content Accessibility Guidelines 2.1*, "contrast ratio".
    pub fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance() + 0.05, other.luminance() + 0.05);
        a.max(b) / a.min(b)
    }

    /// Relative luminance, 0 to 1, by the same guidelines.
    fn luminance(self) -> f64 {
        let linear = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(self.red) + 0.7152 * linear(self.green) + 0.0722 * linear(self.blue)
    }

    pub(crate) const BLACK: Self = Self::new(0x00_0000);
    const WHITE: Self = Self::new(0xFF_FFFF);
}

impl fmt::Display for Rgb {
    /// Displays the colour as in CSS and SVG: `#e69f00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("#{:02x}{:02x}{:02x}", self.red, self.green, self.blue))
    }
}

/// Theme: dark on light, or light on dark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Theme {
    /// Dark on light, for paper and bright rooms.
    #[default]
    Light,
    /// Light on dark, for dark screens.
    Dark,
}

impl Theme {
    /// Both themes.
    pub const ALL: [Self; 2] = [Self::Light, Self::Dark];

    /// Number of colours of [`series`](Self::series).
    pub const NUM_SERIES: usize = SERIES.len();

    const fn pick(self, light: u32, dark: u32) -> Rgb {
        Rgb::new(match self {
            Self::Light => light,
            Self::Dark => dark,
        })
    }

    /// Colour of the background.
    pub const fn background(self) -> Rgb {
        self.pick(0xFF_FFFF, 0x16_191E)
    }

    /// Colour of titles and labels.
    pub const fn text(self) -> Rgb {
        self.pick(0x1A_1A1A, 0xEC_EDEF)
    }

    /// Colour of secondary text: subtitles, ticks.
    pub const fn muted_text(self) -> Rgb {
        self.pick(0x59_5F69, 0xA6_ADB8)
    }

    /// Colour of grid lines.
    pub const fn grid(self) -> Rgb {
        self.pick(0xD4_D8DD, 0x3A_4049)
    }

    /// Colour of a rank's idle time.
    pub const fn idle(self) -> Rgb {
        self.pick(0xEA_ECEF, 0x29_2E35)
    }

    /// Colour of a rank's waits for exchanges.
    pub const fn waiting(self) -> Rgb {
        self.pick(0x9E_9E9E, 0x5B_5B5B)
    }

    /// Colour of a limit, and of values beyond it.
    pub const fn limit(self) -> Rgb {
        self.pick(0xC4_4E00, 0xFF_8A3C)
    }

    /// Colour of a kind of action.
    pub const fn action(self, kind: ActionKind) -> Rgb {
        match kind {
            ActionKind::Forward => self.pick(0x56_B4E9, 0x56_B4E9),
            ActionKind::Backward => self.pick(0x00_9E73, 0x1B_B388),
            ActionKind::InputGrad => self.pick(0xE6_9F00, 0xE6_9F00),
            ActionKind::WeightGrad => self.pick(0x91_4284, 0x9C_4F8C),
            ActionKind::OptimizerStep => self.pick(0xF0_E442, 0xF0_E442),
            ActionKind::SendForward | ActionKind::SendBackward => self.stream(Stream::Send),
            ActionKind::RecvForward | ActionKind::RecvBackward => self.stream(Stream::Receive),
            ActionKind::Unshard | ActionKind::Reshard | ActionKind::ReduceGrad => {
                self.stream(Stream::Data)
            }
        }
    }

    /// Colour of a stream with its own lane.
    pub const fn stream(self, stream: Stream) -> Rgb {
        match stream {
            Stream::Compute => self.action(ActionKind::Forward),
            Stream::Tensor => self.pick(0xC3_4800, 0xB9_4B0D),
            Stream::Context => self.pick(0x67_7C7C, 0x81_6B54),
            Stream::Expert => self.pick(0x76_002A, 0x8B_1CAF),
            Stream::Send => self.pick(0x09_78DB, 0x44_ADA8),
            Stream::Receive => self.pick(0x6F_0D97, 0x92_54EE),
            Stream::Data => self.pick(0xFF_455B, 0xA8_894F),
            Stream::Host => self.pick(0x58_5858, 0x7B_7B7B),
        }
    }

    /// Colour of the `index`-th of several series without a fixed colour, such as parts of memory; colours repeat from
    /// the thirteenth on.
    pub const fn series(self, index: usize) -> Rgb {
        let (light, dark) = SERIES[index % Self::NUM_SERIES];
        self.pick(light, dark)
    }

    /// Colour of position `index` of `count` in an order, from dark to bright in the light theme and the reverse in the
    /// dark one: memory of the first to the last rank.
    ///
    /// # Source
    ///
    /// `viridis` by Smith and van der Walt 2015 on a light background, its yellow left out; on a dark one
    /// `GnBu` of Brewer 2013, *ColorBrewer 2.0*, its deep end left out.
    pub fn ordered(self, index: usize, count: usize) -> Rgb {
        let stops = match self {
            Self::Light => [0x44_0154, 0x3B_528B, 0x21_918C, 0x5E_C962].map(Rgb::new),
            Self::Dark => [0xF7_FCF0, 0xA8_DDB5, 0x4E_B3D3, 0x6C_86CF].map(Rgb::new),
        };
        let last = stops.len() - 1;
        let at = index as f64 / count.saturating_sub(1).max(1) as f64 * last as f64;
        let stop = (at as usize).min(last - 1);
        stops[stop].mix(stops[stop + 1], at - stop as f64)
    }
}

/// Colours of [`Theme::series`], for the light and the dark theme.
const SERIES: [(u32, u32); 12] = [
    (0x00_72B2, 0x0D_5DD9),
    (0xE6_9F00, 0xE6_9F00),
    (0x00_9E73, 0x1B_B388),
    (0xCC_79A7, 0xB7_71B2),
    (0x56_B4E9, 0x7C_C6EF),
    (0xAB_2F1D, 0xB3_3D25),
    (0xF0_E442, 0xF0_E442),
    (0x5A_5656, 0x6B_6D63),
    (0x72_2C71, 0xA3_2A78),
    (0x00_0FB4, 0x59_98FF),
    (0xCA_6006, 0xBB_D086),
    (0xAA_CB9F, 0xA2_E2C7),
];
